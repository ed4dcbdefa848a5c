"""Was capacity lost: a suite measured again and compared with its baseline."""
