"""Bank of partitions: python bank.py OUT SET..."""
import os, sys, time, warnings, pathlib
for v in ("OMP_NUM_THREADS","OPENBLAS_NUM_THREADS","MKL_NUM_THREADS"): os.environ[v]="1"
warnings.filterwarnings("ignore")
import numpy as np, scipy.sparse as sp, torch
torch.set_num_threads(1)
HERE=pathlib.Path(__file__).parent; sys.path.insert(0,str(HERE/"base_src"))
from sklearn.cluster import KMeans, AgglomerativeClustering
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import NearestNeighbors
from sklearn.decomposition import PCA
from pamc.data.preprocessing import fit_preprocessing
from pamc.graph.smoothing import leading_directions, smoothed, on_sphere, embedding, unit_rows
from pamc.graph.neighbors import knn_adjacency
from pamc.graph.adjacency import symmetric_normalize, build_adjacency
from pamc.initialize import consensus as C

def gen(name):
    from sklearn import datasets as D
    kind,_,seed=name.partition("@"); seed=int(seed or 0); r=np.random.default_rng(seed+1000)
    n=500
    if kind=="moons": return D.make_moons(n,noise=.05,random_state=170+seed)
    if kind=="circles": return D.make_circles(n,factor=.5,noise=.05,random_state=170+seed)
    if kind=="blobs": return D.make_blobs(n,random_state=170+seed)
    if kind=="varied": return D.make_blobs(n,cluster_std=[1.,2.5,.5],random_state=170+seed)
    if kind=="aniso":
        x,y=D.make_blobs(n,random_state=170+seed); return x@np.array([[.6,-.6],[-.4,.8]]),y
    if kind=="gauss":  # random gaussian mixtures: dims, k, imbalance, covariance shape, noise columns, units
        d=int(r.choice([2,3,5,8,15,30])); k=int(r.integers(2,9)); w=r.dirichlet(np.full(k,r.choice([1.,3.,20.]))); w=np.maximum(w,.03); w/=w.sum()
        n=int(r.choice([200,500,1500])); c=np.maximum((w*n).astype(int),8); X=[];Y=[]
        for j in range(k):
            A=r.normal(size=(d,d))*r.choice([.3,.6,1.]); A=A/np.sqrt(d)+np.eye(d)*.3; m=r.normal(size=d)*r.choice([1.6,2.2,3.0])/np.sqrt(max(1,d/3)); X.append(r.normal(size=(c[j],d))@A+m); Y+= [j]*c[j]
        X=np.vstack(X); nn=int(r.choice([0,0,2,5])); X=np.hstack([X,r.normal(size=(len(X),nn))*.7]) if nn else X
        if r.random()<.5: X=X*np.exp(r.normal(size=X.shape[1])*2)
        return X,np.array(Y)
    if kind=="manifold": # spirals / rings / bars in the plane with a few blobs
        k=int(r.integers(2,5)); X=[];Y=[]
        for j in range(k):
            m=int(r.integers(80,400)); t=r.random(m); s=r.choice(["arc","bar","blob","ring"]); o=np.array([4.5*(j%2),4.5*(j//2)])
            if s=="arc": P=np.c_[np.cos(np.pi*t),np.sin(np.pi*t)]*1.5
            elif s=="bar": P=np.c_[3*t-1.5,.1*r.normal(size=m)]
            elif s=="ring": P=np.c_[np.cos(2*np.pi*t),np.sin(2*np.pi*t)]*1.5
            else: P=r.normal(size=(m,2))*.5
            a=r.random()*2*np.pi; R=np.array([[np.cos(a),-np.sin(a)],[np.sin(a),np.cos(a)]]); X.append(P@R+o+r.normal(size=(m,2))*.08); Y+=[j]*m
        return np.vstack(X),np.array(Y)
    if kind=="onehot": # latent class model: categorical columns one-hot
        k=int(r.integers(2,7)); n=int(r.choice([300,800])); q=int(r.integers(6,20)); y=r.integers(k,size=n); cols=[]
        for _ in range(q):
            v=int(r.integers(2,6)); P=r.dirichlet(np.full(v,r.choice([.3,1.])),size=k); z=np.array([r.choice(v,p=P[c]) for c in y]); cols.append(np.eye(v)[z])
        return np.hstack(cols),y
    raise KeyError(name)

def load(name):
    """x, y, edges or None"""
    if "@" in name:
        x,y=gen(name); return x.astype(np.float32),y,None
    if name in("digits",):
        from sklearn.datasets import load_digits
        x,y=load_digits(return_X_y=True); return x.astype(np.float32),y,None
    f=HERE/"tables"/f"{name}.npz"; f=f if f.exists() else HERE/f"{name}.npz"
    d=np.load(f); y=d["y"].astype(int)
    x=d["x"].astype(np.float32) if "x" in d else sp.csr_matrix((d["x_data"].astype(np.float32),d["x_indices"].astype(np.int32),d["x_indptr"]),shape=tuple(d["x_shape"]))
    e=d["edges"].T.astype(np.int64) if name in ("acm","amazon_photo","cite","cora","dblp") else None
    return x,y,e

def views(x):
    n=x.shape[0]
    pre=fit_preprocessing(x); f=pre.apply(x)
    thin=(f!=0).sum()<=.1*np.prod(f.shape); cen=pre.kind!="tfidf" and not thin
    L=leading_directions(f,seed=0,centered=cen)
    V={"base":L}
    if not sp.issparse(x) and pre.kind!="tfidf" and pre.kind!="standardize":
        s=fit_preprocessing(x,"standardize").apply(x); V["std"]=leading_directions(s,seed=0)
    return V,pre.kind

def knn_graph(z,k):
    n=len(z); k=min(k,n-1)
    d,i=NearestNeighbors(n_neighbors=k+1).fit(z).kneighbors(z)
    # drop self
    rows=np.repeat(np.arange(n),k); cols=i[:,1:].ravel(); dist=d[:,1:].ravel()
    return rows,cols,dist,d[:,1:]
def sym(n,r,c,w=None,how="max"):
    g=sp.csr_matrix((np.ones(len(r)) if w is None else w,(r,c)),shape=(n,n)); return (g.maximum(g.T) if how=="max" else g.minimum(g.T)).tocsr()
def selftune(n,r,c,dist,dk):
    s=np.maximum(dk[:,min(6,dk.shape[1]-1)],1e-12); return sym(n,r,c,np.exp(-dist**2/(s[r]*s[c])))
def spectral(g,k,seed=0,norm=True,extra=0):
    n=g.shape[0]; g=g+1e-6*sp.identity(n)
    # connect pieces weakly
    S=symmetric_normalize(g)
    from scipy.sparse.linalg import eigsh
    v0=np.random.default_rng(seed).uniform(-1,1,n)
    m=k+extra
    if n<=1500 or m>=n-1:
        w,u=np.linalg.eigh(S.toarray()); u=u[:,::-1][:,:m]
    else:
        w,u=eigsh(S,m,which="LA",v0=v0,tol=1e-4,maxiter=3000); u=u[:,np.argsort(-w)]
    return u
def prim(z):
    n=len(z); sq=(z*z).sum(1); best=np.full(n,np.inf); par=np.zeros(n,int); done=np.zeros(n,bool); cur=0; E=np.empty((n-1,2),int); W=np.empty(n-1)
    for t in range(n-1):
        done[cur]=True; d=sq+sq[cur]-2*z@z[cur]; u=(d<best)&~done; best[u]=d[u]; par[u]=cur; m=np.where(done,np.inf,best); cur=int(m.argmin()); E[t]=par[cur],cur; W[t]=np.sqrt(max(best[cur],0))
    return E,W
def genie(E,W,k,gini=.3):
    n=len(W)+1; o=np.argsort(W,kind="stable"); E=E[o]; par=np.arange(n); size=np.ones(n,int)
    def find(a):
        while par[a]!=a: par[a]=par[par[a]]; a=par[a]
        return a
    alive=np.ones(n-1,bool); ncl=n; p=0; sizes=np.ones(n,int) # sizes by root
    import collections
    cnt=collections.Counter({1:n}); g=0.0
    def calc():
        s=np.array(sorted(cnt)); c=np.array([cnt[v] for v in s]); # gini from counts
        cum=np.cumsum(c); m=ncl; # sum over sorted i: (m-2i+1)... 
        # pairwise |si-sj| sum /( (m-1)*n)
        tot=0.0; cs=np.cumsum(c*s); left=np.concatenate([[0],cum[:-1]]); lefts=np.concatenate([[0],cs[:-1]])
        tot=(c*(s*left-lefts)).sum(); return tot/((m-1)*n) if m>1 else 0
    while ncl>k:
        if g<=gini:
            while not alive[p]: p+=1
            e=p
        else:
            small=min(cnt); 
            e=None
            for t in range(p,n-1):
                if alive[t]:
                    a,b=find(E[t,0]),find(E[t,1])
                    if size[a]==small or size[b]==small: e=t; break
        alive[e]=False; a,b=find(E[e,0]),find(E[e,1])
        for s in (size[a],size[b]):
            cnt[s]-=1
            if not cnt[s]: del cnt[s]
        par[b]=a; size[a]+=size[b]; cnt[size[a]]+=1; ncl-=1; g=calc()
        while p<n-1 and not alive[p]: p+=1
    return np.unique([find(a) for a in range(n)],return_inverse=True)[1]

def layout(z,dim,seed=0,k=15,epochs=300,neg=5):
    """UMAP-like layout by full-batch steps with sampled negatives."""
    n=len(z); r,c,dist,dk=knn_graph(z,k); kk=dk.shape[1]
    rho=dk[:,0]; target=np.log2(kk); lo,hi=np.zeros(n),np.full(n,np.inf); s=np.ones(n)
    for _ in range(40):
        v=np.exp(-np.maximum(dk-rho[:,None],0)/np.maximum(s[:,None],1e-12)).sum(1); big=v>target; hi=np.where(big,s,hi); lo=np.where(big,lo,s); s=np.where(np.isinf(hi),s*2,(lo+hi)/2)
    s=np.maximum(s,1e-3*dk.mean()); w=np.exp(-np.maximum(dk-rho[:,None],0)/s[:,None]).ravel()
    g=sp.csr_matrix((w,(r,c)),shape=(n,n)); p=g.multiply(g.T); g=(g+g.T-p).tocoo()
    u=spectral(g.tocsr(),dim+1)[:,1:]; u=u/np.abs(u).max(0)*10 if u.size else u
    if u.shape[1]<dim: u=np.hstack([u,np.random.default_rng(seed).normal(size=(n,dim-u.shape[1]))*1e-3])
    gen=torch.Generator().manual_seed(seed); y=torch.tensor(u+np.random.default_rng(seed).normal(size=u.shape)*1e-3,dtype=torch.float32)
    a,b=1.577,0.8951
    up=g.row<g.col; i=torch.tensor(g.row[up]).long(); j=torch.tensor(g.col[up]).long(); w=torch.tensor(g.data[up]/g.data.max(),dtype=torch.float32)
    E=len(i)
    for ep in range(epochs):
        lr=1.0*(1-ep/epochs)
        d=y[i]-y[j]; d2=(d*d).sum(1,keepdim=True); co=(-2*a*b*d2.clamp_min(1e-8)**(b-1))/(1+a*d2**b); gr=(co*d).clamp(-4,4)*w[:,None]
        st=torch.zeros_like(y).index_add_(0,i,gr).index_add_(0,j,-gr)
        # negatives: each endpoint of each edge, neg per unit weight
        ii=torch.cat([i,j]); ww=torch.cat([w,w])
        for _ in range(neg):
            q=torch.randint(n,(2*E,),generator=gen); d=y[ii]-y[q]; d2=(d*d).sum(1,keepdim=True); co=(2*b)/((.001+d2)*(1+a*d2**b)); gr=(co*d).clamp(-4,4)*ww[:,None]; st.index_add_(0,ii,gr)
        y=y+lr*st.clamp(-8,8)*.5 if ep<0 else y+lr*st.clamp(-10,10)*.25
    return y.numpy().astype(np.float64)

def run(name,out):
    t00=time.time(); x,y,edges=load(name); n=len(y); k=int(y.max())+1; V,kind=views(x); P={}; T={}; G={}
    def put(m,fn):
        t=time.time()
        try: P[m]=np.unique(np.asarray(fn()),return_inverse=True)[1].astype(np.int16)
        except Exception as e: print(name,m,repr(e)[:120],flush=True); return
        T[m]=time.time()-t
    km=lambda z,ni=20: KMeans(k,n_init=ni,random_state=0).fit_predict(z)
    def gm(z,t="full",d=20):
        z=z[:,:d]/z[:,0].std(); return GaussianMixture(k,n_init=3,reg_covar=1e-3,random_state=0,covariance_type=t).fit_predict(z)
    ward=lambda z: AgglomerativeClustering(k).fit_predict(z)
    for v,L in V.items():
        z=L[:,:50]; z=z/np.sqrt((z*z).sum(1).mean())
        if kind=="tfidf" and v=="base": z=unit_rows(z)
        put("km_"+v,lambda: km(z)); put("gmf_"+v,lambda: gm(z)); put("gmd_"+v,lambda: gm(z,"diag",50)); put("ward_"+v,lambda: ward(z))
        try: E,W=prim(z); put("gen3_"+v,lambda: genie(E,W,k,.3)); put("gen5_"+v,lambda: genie(E,W,k,.5))
        except Exception as e: print(name,"genie",repr(e)[:100])
        put("avg_"+v,lambda: AgglomerativeClustering(k,linkage="average").fit_predict(z))
        r,c,dist,dk=knn_graph(z,10); A=sym(n,r,c); M=sym(n,r,c,how="min"); r5=knn_graph(z,5); A5=sym(n,*r5[:2]); ST=selftune(n,r,c,dist,dk); r20=knn_graph(z,20); A20=sym(n,*r20[:2])
        G[v+"10"]=A; G[v+"mut"]=M; G[v+"5"]=A5; G[v+"20"]=A20
        for tag,g in (("10",A),("st",ST)):
            try: u=spectral(g,k)
            except Exception as e: print(name,"spec",repr(e)[:100]); continue
            put(f"spk{tag}_"+v,lambda: km(u,10)); put(f"spn{tag}_"+v,lambda: km(unit_rows(u),10))
        # smoothing over the euclidean graph
        pts=C.smoothed_points(z,A,min(2*k,32)); put("sme_"+v,lambda: C.by_repeated_kmeans(pts,k,0,n_repeats=12).labels); put("smem_"+v,lambda: C.by_repeated_merging(pts,A,k,0,n_repeats=12).labels)
        put("smeb_"+v,lambda: km(pts[1])); put("smew_"+v,lambda: ward(pts[1])); put("smeg_"+v,lambda: gm(pts[1]))
        if n<=11000:
            for s in (0,):
                e=layout(z,2 if z.shape[1]<3 else min(10,z.shape[1]),s); put(f"laykm{s}_"+v,lambda: km(e)); put(f"laygm{s}_"+v,lambda: gm(e)); put(f"layw{s}_"+v,lambda: ward(e))
    z=V["base"]
    if edges is None: A=knn_adjacency(z,min(10,n-1),torch.device("cpu"),seed=0)
    else: A=build_adjacency(edges,None,n_nodes=n)
    G["pamc"]=A
    pts=C.smoothed_points(z,A,min(2*k,32)); put("sma",lambda: C.by_repeated_kmeans(pts,k,0,n_repeats=18).labels); put("smam",lambda: C.by_repeated_merging(pts,A,k,0,n_repeats=18).labels)
    put("smab",lambda: km(pts[1])); put("smaw",lambda: ward(pts[1])); put("smag",lambda: gm(pts[1]))
    u=spectral(sp.csr_matrix(A),k); put("spka",lambda: km(u,10)); put("spna",lambda: km(unit_rows(u),10))
    S={"y":y.astype(np.int16),"names":np.array(list(P)),"labels":np.stack(list(P.values())),"secs":np.array([T[m] for m in P]),"kind":kind}
    for t,L in V.items(): S["view_"+t]=L[:,:20].astype(np.float32)
    for t,g in G.items(): g=sp.coo_matrix(g); S["g_"+t]=np.stack([g.row,g.col]).astype(np.int32)
    os.makedirs(out,exist_ok=True); np.savez_compressed(f"{out}/{name}.npz",**S); print(name,n,x.shape[1],k,kind,f"{time.time()-t00:.0f}s",flush=True)
if __name__=="__main__":
    for s in sys.argv[2:]:
        try: run(s,sys.argv[1])
        except Exception as e:
            import traceback; traceback.print_exc(); print("FAILED",s)
