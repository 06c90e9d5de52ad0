"""How a machine is let in and reached: token, proof, invitation, addresses. No host and no agent in here."""
