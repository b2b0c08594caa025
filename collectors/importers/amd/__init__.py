"""AMD's recorders: rocmProfileData (rpd), and rocprofv3's databases (rocpd), JSON and CSV (rocprof)."""
