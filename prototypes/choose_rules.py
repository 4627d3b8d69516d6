import json,numpy as np,collections,itertools,sys
rows=[json.loads(l) for l in open('rows.jsonl')]
B=collections.defaultdict(list)
for r in rows:
    r['A']=np.array(r['A']); 
    for k in('acc','nmi','ncut','small'): r[k]=np.array(r[k])
    B[r['set']].append(r)
CH="agnews worm_neuron page_blocks satimage dermatology g_other_iris g_uci_wine soybean vehicle g_fcps_lsun g_fcps_target g_graves_zigzag_noisy g_sipu_aggregation g_sipu_unbalance g_wut_x2".split()
CK="isolet pendigits waveform5000 g_uci_glass g_uci_ionosphere vote g_fcps_chainlink g_other_hdbscan g_sipu_compound g_sipu_s2".split()
KN="usps hhar news4 reut21578_4 digits".split(); GR="dblp cite acm cora amazon_photo".split(); SH=[s+'@0' for s in('moons','circles','aniso','varied','blobs')]
GS=dict(CH=CH,KN=KN,GR=GR,SH=SH,GA=[s for s in B if 'gauss' in s],OH=[s for s in B if 'oneh' in s])
def pick(r,fams,m,w,eps=1e-3):
    I=[r['names'].index(f) for f in fams if f in r['names']]; A=r['A'][np.ix_(I,I)].copy(); np.fill_diagonal(A,-9); s=np.sort(A,1)[:,-m:].mean(1)-w*np.log(r['ncut'][I]+eps); return I[int(np.argmax(s))]
def ev(name,fams,m,w,G=GS,show=()):
    o=[]
    for g,S in G.items():
        a=[np.mean([r['acc'][pick(r,fams,m,w)] for r in B[s]]) for s in S]; b=[np.mean([r['nmi'][pick(r,fams,m,w)] for r in B[s]]) for s in S]; o.append('%s %.1f/%.1f'%(g,np.mean(a),np.mean(b)))
    print('%-22s'%name,'  '.join(o),' '.join(str([(r['names'][pick(r,fams,m,w)],round(r['acc'][pick(r,fams,m,w)])) for r in B[s]]) for s in show))
if __name__=='__main__':
    fams=rows[0]['names']
    print('%-20s'%'family','  '.join(GS))
    for f in fams: print('%-20s'%f,'  '.join('%.1f/%.1f'%(np.mean([np.mean([r['acc'][r['names'].index(f)] for r in B[s] if f in r['names']]) for s in S]),np.mean([np.mean([r['nmi'][r['names'].index(f)] for r in B[s] if f in r['names']]) for s in S])) for S in GS.values()), 'secs %.1f'%np.mean([r['secs'][r['names'].index(f)] for r in rows if f in r['names']]))
    for s in KN+['page_blocks']:
        print(s,[(n,round(a)) for n,a in zip(B[s][0]['names'],B[s][0]['acc'])])
    base=['k-means','Gaussian mixture','spectral','smoothed k-means','merged groups']
    V={'six10':base+['layout10.0'],'six15':base+['layout15.0'],'+e':base+['layout15.0','merged groups e'],'+e10':base+['layout10.0','merged groups e'],'+2lay':base+['layout15.0','layout15.1'],'+lay+e2':base+['layout15.0','layout10.1','merged groups e'],'+ee':base+['layout15.0','merged groups e','smoothed k-means e'],'+sm':base+['layout15.0','smoothed mixture'],'+e+sm':base+['layout15.0','merged groups e','smoothed mixture']}
    for v,F in V.items():
        for m,w in itertools.product((2,3,4),(.05,.1)): ev(f'{v} top{m} w{w}',F,m,w)
