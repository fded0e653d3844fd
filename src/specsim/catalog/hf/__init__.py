"""Any Hugging Face config.json, read by the meaning of its fields.

`config` is the entry; `fields` gives typed access and remembers what was read; `families` holds
what configs leave unsaid; `attention`, `recurrent` and `feedforward` build the layers;
`quantization` finds the stored formats; `drafters` reads EAGLE, Medusa, DFlash and MTP heads.
"""
