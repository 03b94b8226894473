"""A model of a Triton repository as a function: start, events, the protocol's messages, the models in process."""
