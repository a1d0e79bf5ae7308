"""What was asked of the server: request traces, made or recorded, and the slot arithmetic of batches."""
