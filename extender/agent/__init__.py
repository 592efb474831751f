"""``muster agent``: says on its own Node what the node's devices are, how they are, who holds them.

One process a node. A reading goes one way: ``driver.py`` (NVML), ``tree.py`` (sysfs) and
``kubelet.py`` (podresources) each give what they can as values of ``facts.py``; ``assemble.py``
joins them, purely; ``publish.py`` writes the two annotations when they differ. What a source lacks
stays unknown in its field alone, and ``lacks.py`` says so once.
"""
