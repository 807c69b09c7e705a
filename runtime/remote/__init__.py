"""Object stores that outlive the machine: a local folder, S3, Google Cloud Storage, Azure."""
