"""Models and drafters from a Hugging Face config.json."""

from specsim.catalog.hf.config import read_config
from specsim.catalog.hf.drafters import mtp_drafter

__all__ = ["mtp_drafter", "read_config"]
