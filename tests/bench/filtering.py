HELP = ""
def arguments(p): pass
def run(a): return {}
