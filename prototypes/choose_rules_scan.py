import sys; sys.path.insert(0,'.')
import r6; from r6 import *
def run(F,m,w,eps):
    global pick
    r6.pick=lambda r,fams,mm,ww: pk(r,fams,mm,ww,eps)
    ev(f'top{m} w{w} eps{eps}',F,m,w)
def pk(r,fams,m,w,eps):
    I=[r['names'].index(f) for f in fams if f in r['names']]; A=r['A'][np.ix_(I,I)].copy(); np.fill_diagonal(A,-9); s=np.sort(A,1)[:,-m:].mean(1)-w*np.log(r['ncut'][I]+eps); return I[int(np.argmax(s))]
base=['k-means','Gaussian mixture','spectral','smoothed k-means','merged groups']
for n,F in {'+e10':base+['layout10.0','merged groups e'],'six10':base+['layout10.0'],'+e15':base+['layout15.0','merged groups e'],'noSK':['k-means','Gaussian mixture','spectral','merged groups','layout10.0','merged groups e']}.items():
    print(n)
    for m in (2,3):
        for w in (.03,.05,.07,.1):
            for eps in (1e-4,3e-5,1e-5): run(F,m,w,eps)
