"""One file per verb. Heavy imports (torch, pandas, matplotlib) stay inside the functions that need them."""
