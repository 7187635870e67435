"""x"""
class ExportArchive:
    pass
