"""The web console: a server of HTML pages that is an ordinary client of a cluster.

`server.run` serves it. Each page is a module of `pages` with a template of the same name; `page`
has the types of a page. The cluster is reached with the public Python client alone, with the
credentials of the user who signed in. The package needs the extra `quorumlog[console]`.
"""
