/* do_nothing.c - the worker of launch.py: started, and at its end. Linked statically, so that little of what
 * is measured is its own. */
int main(void)
{
    return 0;
}
