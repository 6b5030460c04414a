"""What a record rides in: segments of one arena, counted buffers, pools."""
