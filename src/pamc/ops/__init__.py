"""The equations of the paper, each op under one stem: dense reference, plain torch, Triton launchers, kernels.

A stem is a module of :mod:`pamc.ops.torch` (T), of :mod:`pamc.ops.triton` (L, the kernel launchers), and of
:mod:`pamc.ops.kernels` (K, device code); a dash means that there is none.

========== ============================== ============================= ====================================== =====
stem       equation or op                 reference                     function                               where
========== ============================== ============================= ====================================== =====
rows       rows of length 1 (Eq 4)        similarity                    unit_rows                              T L K
rows       sums, products, fixed order    —                             ordered_sum, column_sums, row_product, T — —
                                                                        gram
rows       random masks                   —                             hidden_values                          T — —
rows       sum of the programs' parts     —                             sum_parts                              — L K
positives  inner sum of Eqs 1 and 3       log_positive_mass             positive_log_mass                      T L K
clustering self-training (Eqs 9 to 11)    soft_assignment,              self_training                          T L K
                                          target_distribution,
                                          kl_divergence
clustering meta-nodes (Eq 8), times N     meta_nodes                    cluster_sums                           T L K
clustering labels that changed            —                             with_changes                           T L K
proxy      proxy (Eqs 2 and 6)            proxy, loss_cc                proxy                                  T L K
proxy      uniformity                     —                             uniformity                             T L K
objective  Eq 12 as a whole               objective                     objective                              — L K
linear     gradient of a ReLU             —                             relu_backward                          T L K
linear     gradient of a narrow layer     —                             relu_linear_backward                   — L K
linear     product of a narrow layer      —                             narrow_product                         — L K
linear     transposed copy                —                             transposed                             T L K
adam       a step of Adam                 —                             KernelAdam                             — L K
adam       a step of Adam by torch        —                             FusedAdam                              T — —
========== ============================== ============================= ====================================== =====

Eqs 3, 5 and 7 are composed of these in :mod:`pamc.losses`. :mod:`pamc.ops.dispatch` selects the backend of an op. The
package also contains K-means (:mod:`~pamc.ops.kmeans`), label-free scores (:mod:`~pamc.ops.scores`), and CUDA graphs of
repeated work (:mod:`~pamc.ops.cuda_graph`).
"""
