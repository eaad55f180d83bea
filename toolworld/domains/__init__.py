"""The twelve domains of the embedded world, one category each; Energy occurs only in test tasks."""

from toolworld.domains.hubs import BUSINESS, COMMUNICATION, LOCATION
from toolworld.domains.leisure import EVENTS, FOOD, SPORTS, TRAVEL
from toolworld.domains.work import EDUCATION, ENERGY, FINANCE, LOGISTICS, WEATHER

DOMAINS = (
    LOCATION, COMMUNICATION, BUSINESS, TRAVEL, FINANCE, FOOD, EVENTS, EDUCATION, SPORTS, WEATHER, LOGISTICS, ENERGY,
)  # fmt: skip
