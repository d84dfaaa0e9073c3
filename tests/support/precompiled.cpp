// The owner of the precompiled header that the test programs share.
