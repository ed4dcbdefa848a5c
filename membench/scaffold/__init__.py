"""The files that `membench new` fills in: those of every plugin in `any`, those of each kind beside it.

In names and contents, @name@ stands for the name that was given, @package@ for the Python package and @project@ for
the distribution; a file's name loses `.template`, and one that starts with `dot-` gets its dot.
"""
