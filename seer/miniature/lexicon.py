"""The names of the miniature world: the printed word, and the paraphrase that a question can use instead.

No paraphrase shares a word (in Chinese: a character) with its name, so lexical search cannot match them.
"""

from __future__ import annotations

ENGLISH_NAMES = {
    "doctor": "physician",
    "lawyer": "attorney",
    "pupil": "student",
    "friend": "companion",
    "king": "monarch",
    "thief": "robber",
    "baby": "infant",
    "boy": "lad",
    "dog": "hound",
    "cat": "feline",
    "horse": "steed",
    "pig": "swine",
    "rabbit": "hare",
    "snake": "serpent",
    "bug": "insect",
    "car": "automobile",
    "ship": "vessel",
    "house": "dwelling",
    "street": "avenue",
    "forest": "woodland",
    "prison": "jail",
    "shop": "store",
    "lamp": "lantern",
    "sofa": "couch",
    "cup": "mug",
    "coat": "jacket",
    "shoe": "boot",
    "bag": "sack",
    "rope": "cord",
    "knife": "blade",
    "film": "movie",
    "song": "tune",
    "gift": "present",
    "money": "cash",
    "storm": "tempest",
    "fire": "blaze",
}

CHINESE_NAMES = {
    "医生": "大夫",
    "电脑": "计算机",
    "爸爸": "父亲",
    "妈妈": "母亲",
    "番茄": "西红柿",
    "土豆": "马铃薯",
    "房子": "住宅",
    "饭店": "餐馆",
    "朋友": "伙伴",
    "孩子": "儿童",
    "学校": "书院",
    "老虎": "大虫",
    "太阳": "日头",
    "礼物": "赠品",
    "警察": "公安",
    "钞票": "纸币",
}

PARAPHRASES = ENGLISH_NAMES | CHINESE_NAMES
"""Every printed name with its paraphrase."""
