"""What the systems that collect evidence by free chats share: calls, budgets, images, prompts, and answers with citations."""
