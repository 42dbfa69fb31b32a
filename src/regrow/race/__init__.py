"""Dense against sparse on one data set, side by side: error against seconds, epochs and multiply-accumulates."""
