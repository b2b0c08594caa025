"""DeepProf: what one training iteration is, where its time goes, and why the GPU waits."""
