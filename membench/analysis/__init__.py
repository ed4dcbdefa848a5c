"""Numbers to findings: columns of records, curves with intervals, fitted laws, and figures in one look."""
