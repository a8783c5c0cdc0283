"""PyTorch without its compiler, for tests that compare with it (torch_python.require) and for workers that start very often:
DistributedDataParallel, FSDP2, the optimizers and transformers load torch._dynamo and 800 modules with it, only to ask whether something
is being compiled. That is half of a worker's processor time until its first step."""

import importlib
import os
import sys
import types

import torch


def leave_out():
    """Before anything asks for the compiler; its callers get the answers of a run without compilation."""
    nothing = types.SimpleNamespace(cache_clear=lambda: None)
    compiler = types.ModuleType("torch._dynamo")
    compiler.__path__ = [os.path.join(os.path.dirname(torch.__file__), "_dynamo")]  # small files that are imported by name are the real ones
    as_it_is = lambda function: function
    compiler.disable = lambda function=None, recursive=True, **options: function or as_it_is
    compiler.assume_constant_result = compiler.allow_in_graph = as_it_is
    compiler.graph_break = compiler.mark_static_address = lambda *arguments, **options: None
    compiler.OptimizedModule = type("OptimizedModule", (), {})
    compiler.eval_frame = types.SimpleNamespace(OptimizedModule=compiler.OptimizedModule)
    compiler.utils = types.SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
    compiler.trace_rules = types.SimpleNamespace(
        clear_lru_cache=lambda: None, LEGACY_MOD_INLINELIST=set(), get_legacy_mod_inlinelist=nothing
    )
    sys.modules["torch._dynamo"] = torch._dynamo = compiler
    importlib.import_module("torch._dynamo.config")  # the real one: settings alone
