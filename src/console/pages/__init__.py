"""The pages: one module per subject, with PAGES and CHANGES; `app` lists the modules."""
