"""The measures, one file each: `measure(bench, results)` takes its samples and adds its ratios and figures."""
