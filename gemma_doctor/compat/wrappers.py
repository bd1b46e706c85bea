"""Models and tokenizers as programs hold them: wrapped by torch, PEFT, accelerate, or in a processor."""

from __future__ import annotations

from typing import Any

COMPILED = "compiled: examined uncompiled"
# What PEFT puts in front of the tokens or into the attention: the model inside no longer computes what is deployed.
PROMPT_ADAPTERS = ("is_prompt_learning", "is_adaption_prompt")


def inner_model(wrapped: Any) -> tuple[Any, tuple[str, ...]]:
    """The library's own model inside of wrappers, and what is left out of them, in words.

    Adapter layers and accelerate's hooks sit in the model itself: they stay, and act.

    Raises:
        ValueError: there is no such model inside, or an adapter makes another forward of it. The message says so.
    """
    taken: list[str] = []
    model = wrapped
    while not _is_model(model):
        inside = _taken_off(model)
        if inside is None:
            raise ValueError(f"{type(model).__name__} is no model of transformers, and none is known to be inside")
        model, what = inside
        taken += [what] if what else []
    taken += [COMPILED] if COMPILED not in taken and any(map(is_compiled, model.modules())) else []
    return model, tuple(taken)


def _is_model(candidate: Any) -> bool:
    from transformers import PreTrainedModel

    return isinstance(candidate, PreTrainedModel)


def _taken_off(model: Any) -> tuple[Any, str] | None:
    """The next model inside and what was taken off; None if this is nothing that has one."""
    import torch

    inside = dict(model.named_children()) if isinstance(model, torch.nn.Module) else {}
    if "_orig_mod" in inside:  # torch.compile
        return inside["_orig_mod"], COMPILED
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        return model.module, ""
    if hasattr(model, "peft_config") and hasattr(model, "get_base_model"):
        _require_layers(model)
        return model.get_base_model(), ""
    return None


def _require_layers(peft_model: Any) -> None:
    for name in _active(peft_model):
        config = peft_model.peft_config[name]
        if any(getattr(config, one, False) for one in PROMPT_ADAPTERS):
            kind = getattr(config.peft_type, "value", config.peft_type)
            raise ValueError(f"its adapter {name!r} ({kind}) adds tokens of its own, which no mask expected here has")


def _active(peft_model: Any) -> tuple[str, ...]:
    named = peft_model.active_adapters
    return (named,) if isinstance(named, str) else tuple(named)


def adapters_in_force(model: Any) -> tuple[str, ...]:
    """Names of the adapters whose layers sit in a model and act, sorted."""
    found: set[str] = set()
    for module in model.modules():
        active = getattr(module, "active_adapters", None) if hasattr(module, "base_layer") else None
        if isinstance(active, (list, tuple)) and not getattr(module, "disable_adapters", False):
            found |= {str(name) for name in active}
    return tuple(sorted(found))


def fed_on(model: Any) -> Any:
    """The device that ids are fed on: that of the embedding, or where accelerate's hook brings it for its forward."""
    import torch

    embedding = model.get_input_embeddings()
    hook = getattr(embedding, "_hf_hook", None)
    for one in (*getattr(hook, "hooks", ()), hook):
        device = getattr(one, "execution_device", None)
        if device is not None:
            return torch.device(device)
    return next(iter([*embedding.parameters(), *model.parameters()])).device


def is_compiled(module: Any) -> bool:
    """The module was compiled where it is, by `module.compile()` or `module.forward = torch.compile(...)`."""
    own = vars(module)
    return own.get("_compiled_call_impl") is not None or hasattr(own.get("forward"), "_torchdynamo_orig_callable")


def uncompile(module: Any) -> None:
    """Let a module that was compiled where it is run as it was written. Who wants it back keeps its attributes."""
    if vars(module).get("_compiled_call_impl") is not None:
        module._compiled_call_impl = None
    plain = getattr(vars(module).get("forward"), "_torchdynamo_orig_callable", None)
    if plain is not None:
        module.forward = plain


def writes_tokens(model: Any) -> bool:
    """The model has a head over its vocabulary and generate()."""
    return bool(model.can_generate()) and model.get_output_embeddings() is not None


def inner_tokenizer(given: Any) -> Any:
    """A tokenizer, or the one in a processor.

    Raises:
        ValueError: it is neither.
    """
    from transformers import PreTrainedTokenizerBase

    for one in (given, getattr(given, "tokenizer", None)):
        if isinstance(one, PreTrainedTokenizerBase):
            return one
    raise ValueError(f"{type(given).__name__} is no tokenizer of transformers")


def own_configs(model: Any) -> tuple[Any, ...]:
    """Every configuration object that the modules of a model hold, with those inside of them, and the generation's."""
    from transformers import GenerationConfig, PretrainedConfig

    found: dict[int, Any] = {}
    waiting = [value for module in model.modules() for value in vars(module).values()]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (PretrainedConfig, GenerationConfig)) and id(one) not in found:
            found[id(one)] = one
            waiting += vars(one).values()
    return tuple(found.values())
