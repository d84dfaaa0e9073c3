"""The version of the whole. CMake and the packages read this line; `scripts/version` writes it, and the copies of it in
files that can read nothing; docs/how-to/release.md has the other steps of a release."""

__version__ = "0.2.0"
