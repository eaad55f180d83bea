"""The 49 categories of the ToolBench corpus: the raw folder names of which ToolIds are made, spelt as they are there.

Ordered by their number of APIs in that corpus, largest first (Sports holds a fifth of all, Storage six).
"""

TOOLBENCH_CATEGORIES: tuple[str, ...] = tuple(
    """
    Sports Finance Data Social Other Music Entertainment Business Tools News_Media Travel eCommerce Gaming Location
    Database Communication Financial Video_Images Education Food Weather Email Business_Software Transportation Media
    Commerce Advertising Mapping Movies Artificial_Intelligence_Machine_Learning Search Science Text_Analysis
    Health_and_Fitness SMS Translation Events Medical Monitoring Devices Visual_Recognition Logistics Payments
    Cryptography Energy Cybersecurity Jobs Reward Storage
    """.split()
)
