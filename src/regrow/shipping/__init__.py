"""From a trained sparse network to something that runs elsewhere: files, removal of channels, inference, other formats."""
