"""Tasks whose answer lies many edges away: chains, trees and rings, for our operator and for compared models."""
