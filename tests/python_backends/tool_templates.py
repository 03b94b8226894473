"""Small chat templates that write tools and calls as three families of models do."""

from __future__ import annotations

# ruff: noqa: E501  a line of a template is a line of its text

__all__ = ["HERMES", "LLAMA", "MISTRAL"]

HERMES = """{%- if tools %}<|im_start|>system
Tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
A call is <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{%- if message.role == 'tool' %}
<tool_response>{{ message.content }}</tool_response>
{%- elif message.content %}
{{ message.content }}
{%- endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Tags around each call, as Hermes and Qwen have them."""

MISTRAL = """{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools and loop.last %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST]{{ message.content }}[/INST]
{%- elif message.role == 'tool' %}[TOOL_RESULTS]{"content": {{ message.content | tojson }}, "call_id": "{{ message.tool_call_id }}"}[/TOOL_RESULTS]
{%- elif message.tool_calls %}[TOOL_CALLS][
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('an id has nine characters') }}{% endif %}
{{- {"name": call.function.name, "arguments": call.function.arguments, "id": call.id} | tojson }}
{%- if not loop.last %}, {% endif %}
{%- endfor %}]{{ eos_token }}
{%- else %}{{ message.content }}{{ eos_token }}
{%- endif %}
{%- endfor %}"""
"""A list after a mark, as Mistral has it."""

LLAMA = """{{- bos_token }}
{%- if tools is defined and tools is not none %}<|start|>system<|end|>
{%- for tool in tools %}
{{ tool | tojson(indent=4) }}
{% endfor %}<|eot|>{% endif %}
{%- for message in messages %}<|start|>{{ 'ipython' if message.role == 'tool' else message.role }}<|end|>
{% if message.tool_calls %}{% set call = message.tool_calls[0].function %}{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}{{ message.content | trim }}{% endif %}<|eot|>
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant<|end|>
{% endif %}"""
"""JSON alone, as Llama 3 has it."""
