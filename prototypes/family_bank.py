import os,sys,time,json,warnings; warnings.filterwarnings("ignore")
os.environ["OMP_NUM_THREADS"]="1"
HERE=os.path.dirname(os.path.abspath(__file__)); sys.path.insert(0,HERE+"/p4_src")
import numpy as np, torch, scipy.sparse as sp
torch.set_num_threads(1)
src=open(HERE+'/bank.py').read().split('def views')[0].replace('sys.path.insert(0,str(HERE/"base_src"))','').replace('__file__',repr(HERE+'/bank.py'))
exec('\n'.join(l for l in src.splitlines() if not l.startswith('from pamc')))
from pamc.config import FitConfig
from pamc.data.preprocessing import fit_preprocessing
from pamc.initialize.inputs import directions_of, compared_by_angle
from pamc.initialize.consensus import InputSource, _smoothed_points, _mutual_neighbors
from pamc.initialize.family import FAMILIES, FamilyInput
from pamc.initialize.families.layout import layout, fuzzy_graph
from pamc.initialize.families.gaussian_mixture import mixture_labels
from pamc.graph.neighbors import nearest, knn_adjacency
from pamc.graph.adjacency import build_adjacency
from pamc.ops.scores import conductance, modularity
from pamc.ops.kmeans import kmeans
from sklearn.metrics import adjusted_rand_score as ARI
from pamc.results.metrics import evaluate
from pamc.initialize import partitions as PT
from dataclasses import replace
dev=torch.device('cuda' if torch.cuda.is_available() else 'cpu')
out=open(sys.argv[1],'a')
REP=int(os.environ.get('REP','54')); seeds=[int(s) for s in os.environ.get('SEEDS','0').split(',')]
for name in sys.argv[2:]:
  for seed in seeds:
    try:
        x,y,e=load(name); k=int(y.max())+1; ok=y>=0; n=len(y)
        pre=fit_preprocessing(x); f=pre.apply(x); L=directions_of(f,pre.kind,seed,dev); text=compared_by_angle(f,pre.kind)
        A=knn_adjacency(L,min(10,n-1),dev,seed=seed) if e is None else build_adjacency(e,None,n_nodes=n)
        I=InputSource("features and graph",L,A,e is None,by_angle=text); pts=I.points()
        edges=nearest(pts,min(10,n-1),device=dev).edges; N10=build_adjacency(edges,None,n_nodes=n,expect_directed=True); e15=nearest(pts,min(15,n-1),device=dev).edges; N15=build_adjacency(e15,None,n_nodes=n,expect_directed=True)
        g=FamilyInput(points=pts,neighbors=N10,adjacency=A,smoothed=_smoothed_points(I,k,dev),n_clusters=k,n_repeats=REP,seed=seed,device=dev)
        P={};T={}
        def put(m,fn):
            t=time.time()
            try: P[m]=np.unique(fn(),return_inverse=True)[1].astype(np.int64); T[m]=time.time()-t
            except Exception as ex: print(name,m,repr(ex)[:150],flush=True)
        for fam in FAMILIES:
            if fam!='layout': put(fam,lambda: FAMILIES[fam](g))
        ge=replace(g,adjacency=N10,smoothed=_smoothed_points(replace(I,adjacency=N10),k,dev)); put('merged groups e',lambda: FAMILIES['merged groups'](ge)); put('smoothed k-means e',lambda: FAMILIES['smoothed k-means'](ge))
        put('smoothed mixture',lambda: mixture_labels(g.smoothed[1],k,seed))
        nd=min(10,max(2,pts.shape[1]))
        for kk,G in ((10,N10),(15,N15)):
            fz=fuzzy_graph(pts,G)
            for s in (0,1): put(f'layout{kk}.{s}',lambda: mixture_labels(layout(fz,nd,seed=100*seed+s,device=dev),k,seed))
        if e is not None:
            fz=fuzzy_graph(unit_rows(g.smoothed[1]) if False else g.smoothed[1],A); put('layout A',lambda: mixture_labels(layout(fz,nd,seed=seed,device=dev),k,seed))
        mut=_mutual_neighbors(edges,n) if e is None else A
        names=list(P); row=dict(set=name,seed=seed,n=n,k=k,d=int(x.shape[1]),names=names,acc=[],nmi=[],ncut=[],small=[],secs=[round(T[m],2) for m in names])
        for m in names:
            r=evaluate(y[ok],P[m][ok]); row['acc'].append(100*r['acc']); row['nmi'].append(100*r['nmi']); row['ncut'].append(float(conductance(mut,P[m]).mean())); row['small'].append(float(np.bincount(P[m],minlength=k).min()/(n/k)))
        row['A']=[[round(float(ARI(P[a],P[b])),4) for a in names] for b in names]
        out.write(json.dumps(row)+'\n'); out.flush()
    except Exception as ex:
        import traceback; traceback.print_exc(); print('FAILED',name)
