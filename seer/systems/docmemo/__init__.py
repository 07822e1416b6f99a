"""DocMemo: rounds of reading, guided by memories of the document, of its pages and of the question."""
