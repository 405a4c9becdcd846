from .board import Board as Board, Reproduction as Reproduction
from .catalogue import recipes as recipes
from .recipe import Claim as Claim, Printed as Printed, Recipe as Recipe
from .verb import reproduce as reproduce
