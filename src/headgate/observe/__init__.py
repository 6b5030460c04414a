"""What a person sees of running jobs: figures made of what tasks report, and pictures of them."""
