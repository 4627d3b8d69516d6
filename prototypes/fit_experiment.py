import os,sys,time,json,warnings; warnings.filterwarnings("ignore")
os.environ["OMP_NUM_THREADS"]="1"
HERE=os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0,HERE+"/p4_src")
import numpy as np, torch
torch.set_num_threads(1)
src=open(HERE+'/bank.py').read().split('def views')[0].replace('sys.path.insert(0,str(HERE/"base_src"))','').replace('__file__',repr(HERE+'/bank.py'))
exec('\n'.join(l for l in src.splitlines() if not l.startswith('from pamc')))
import pamc; assert 'p4_src' in pamc.__file__
from pamc import PamCGC
from pamc.results.metrics import evaluate
from pamc.initialize.initializers import consensus as CI
import pamc.training.sources as SRC
real=CI.agreed_clusters; memo={}
def cached(inputs,k,**o):
    key=(k,o.get('seed'))
    if key not in memo: memo[key]=real(inputs,k,**o)
    return memo[key]
CI.agreed_clusters=cached
SRC.fit_split_halves=lambda *a,**k: None
cuda=torch.cuda.is_available()
out=open(sys.argv[1],'a'); SET=json.loads(os.environ['SETTINGS']); seeds=[int(s) for s in os.environ.get('SEEDS','0').split(',')]
for name in sys.argv[2:]:
    x,y,e=load(name); k=int(y.max())+1; ok=y>=0; memo.clear()
    for seed in seeds:
        for tag,opts in SET.items():
            t=time.time()
            try:
                main={a:opts[a] for a in('n_epochs','alpha','beta','n_hops','n_neighbors') if a in opts}
                m=PamCGC(n_clusters=k,random_state=seed,device='cuda' if cuda else 'cpu',advanced={a:b for a,b in opts.items() if a not in main},**main)
                m.fit(x,adjacency=e) if e is not None else m.fit(x)
                r=evaluate(y[ok],m.labels_[ok]); f=m._fit_result.facts; st=next(iter(memo.values()))
                rs=evaluate(y[ok],memo[(k,seed)].labels[ok]) if (k,seed) in memo else evaluate(y[ok],st.labels[ok])
                row=dict(set=name,seed=seed,tag=tag,acc=100*r['acc'],nmi=100*r['nmi'],start_acc=100*rs['acc'],start_nmi=100*rs['nmi'],by=f.get('clusters_by'),fb=f.get('fallback'),sizes=np.bincount(m.labels_,minlength=k).tolist(),secs=time.time()-t,ph=m._fit_result.seconds)
            except Exception as ex: row=dict(set=name,seed=seed,tag=tag,error=repr(ex)[:300])
            out.write(json.dumps(row)+'\n'); out.flush()
