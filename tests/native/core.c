/* What stands for libtritonserver: the program's own function is called from here. */
void send_answer(void* (*answer)(void*));

void send_answer(void* (*answer)(void*)) { answer((void*)0); }
