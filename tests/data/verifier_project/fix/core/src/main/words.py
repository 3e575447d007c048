def join(words):
    return " ".join(words)


def split(text):
    return text.split(" ")
