"""specsim: when does speculative decoding pay?"""
__version__ = "0.1.0"
