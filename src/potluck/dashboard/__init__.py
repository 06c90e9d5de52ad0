"""The dashboard: pages in a browser that show runs while they train and after. They only read run folders."""
