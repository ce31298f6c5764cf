module my-lock

go 1.19
