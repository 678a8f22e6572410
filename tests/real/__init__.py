"""Tests on the real stack: verl, Ray, TransferQueue, vLLM, FSDP2 and PEFT on the CPU, a run shared by a module."""
