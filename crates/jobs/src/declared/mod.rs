mod cel;
