"""What cenote.sglang is made of. None of these modules imports SGLang before it is asked for something of SGLang's."""
