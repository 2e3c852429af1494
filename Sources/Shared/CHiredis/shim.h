#include <hiredis/read.h>
