/* manifest_pod.c - see manifest_options.h: the pod that every kind has. */
#include <string.h>

#include "launcher/manifest/manifest_options.h"

struct writing {
    const struct manifest_options *o;
    struct buffer *out;
    int indent;
};

/* One line, deeper than the template by so many blanks. */
static void line(const struct writing *w, int deeper, const char *text)
{
    buffer_printf(w->out, "%*s%s\n", w->indent + deeper, "", text);
}

/* "key: text", quoted. */
static void pair(const struct writing *w, int deeper, const char *key, const char *text)
{
    buffer_printf(w->out, "%*s%s: ", w->indent + deeper, "", key);
    buffer_json_string(w->out, text);
    buffer_text(w->out, "\n");
}

static void variable(const struct writing *w, const char *name, const char *value)
{
    buffer_printf(w->out, "%*s- {name: %s, value: ", w->indent + 6, "", name);
    buffer_json_string(w->out, value);
    buffer_text(w->out, "}\n");
}

static void number(const struct writing *w, const char *name, int64_t value)
{
    buffer_printf(w->out, "%*s- {name: %s, value: \"%lld\"}\n", w->indent + 6, "", name, (long long)value);
}

static void environment(const struct writing *w, const struct manifest_place *place)
{
    const struct manifest_options *o = w->o;
    line(w, 4, "env:");
    number(w, "PET_SHUTDOWN_TIMEOUT", (int64_t)o->grace_s - MANIFEST_GRACE_MARGIN_S);
    number(w, "PET_MAX_RESTARTS", o->restarts);
    if (place->nodes && o->nodes > 1)
        number(w, "PET_NNODES", o->nodes);
    if (place->nodes)
        number(w, "PET_NPROC_PER_NODE", manifest_workers(o));
    if (place->master && o->nodes > 1) {
        variable(w, "PET_MASTER_ADDR", place->master);
        number(w, "PET_MASTER_PORT", MANIFEST_PORT);
    }
    if (o->metrics_port)
        number(w, "MUSTER_METRICS_PORT", o->metrics_port);
    if (manifest_has_secret(o))
        variable(w, "MUSTER_SECRET_FILE", "/etc/muster-secret/secret");
    for (char *const *entry = o->env; entry && *entry; entry++) {
        buffer_printf(w->out, "%*s- {name: %.*s, value: ", w->indent + 6, "", (int)strcspn(*entry, "="),
                      *entry);
        buffer_json_string(w->out, strchr(*entry, '=') + 1);
        buffer_text(w->out, "}\n");
    }
}

static void resources(const struct writing *w)
{
    const struct manifest_options *o = w->o;
    if (!o->gpus && !o->cpus && !o->memory)
        return;
    line(w, 4, "resources:");
    line(w, 6, "limits:");
    if (o->cpus)
        buffer_printf(w->out, "%*scpu: \"%lld\"\n", w->indent + 8, "", (long long)o->cpus);
    if (o->memory)
        pair(w, 8, "memory", o->memory);
    if (o->gpus)
        buffer_printf(w->out, "%*snvidia.com/gpu: \"%lld\"\n", w->indent + 8, "", (long long)o->gpus);
}

static void volumes(const struct writing *w)
{
    line(w, 2, "volumes:");
    line(w, 4, "- {name: launcher, emptyDir: {}}");
    buffer_printf(w->out,
                  "%*s- {name: shm, emptyDir: {medium: Memory, sizeLimit: %s}} # 64 MB by default: too "
                  "little for NCCL\n",
                  w->indent + 4, "", w->o->shm);
    if (manifest_has_secret(w->o)) {
        buffer_printf(w->out, "%*s- {name: job-secret, secret: {secretName: ", w->indent + 4, "");
        manifest_secret_name(w->o, w->out);
        buffer_text(w->out, ", defaultMode: 0400}}\n");
    }
    for (char *const *claim = w->o->claims; claim && *claim; claim++)
        buffer_printf(w->out, "%*s- {name: claim-%d, persistentVolumeClaim: {claimName: %.*s}}\n",
                      w->indent + 4, "", (int)(claim - w->o->claims), (int)strcspn(*claim, "="), *claim);
}

static void container(const struct writing *w, const char *name, const struct manifest_place *place)
{
    line(w, 2, "containers:");
    buffer_printf(w->out, "%*s- name: %s\n", w->indent + 2, "", name);
    pair(w, 4, "image", w->o->image);
    buffer_printf(w->out, "%*scommand: [/opt/muster/bin/muster, run, --", w->indent + 4, "");
    for (char *const *word = w->o->program; *word; word++) {
        buffer_text(w->out, ", ");
        buffer_json_string(w->out, *word);
    }
    buffer_text(w->out, "]\n");
    environment(w, place);
    if (w->o->metrics_port) {
        line(w, 4, "ports:");
        buffer_printf(w->out, "%*s- {name: metrics, containerPort: %lld}\n", w->indent + 6, "",
                      (long long)w->o->metrics_port);
        line(w, 4,
             "livenessProbe: # the agent's loop turns; no readiness probe: pods wait for each other's names");
        line(w, 6, "httpGet: {path: /healthz, port: metrics}");
        line(w, 6, "initialDelaySeconds: 5");
        line(w, 6, "failureThreshold: 6");
    }
    resources(w);
    line(w, 4, "volumeMounts:");
    line(w, 6, "- {name: launcher, mountPath: /opt/muster, readOnly: true}");
    line(w, 6, "- {name: shm, mountPath: /dev/shm}");
    if (manifest_has_secret(w->o))
        line(w, 6, "- {name: job-secret, mountPath: /etc/muster-secret, readOnly: true}");
    for (char *const *claim = w->o->claims; claim && *claim; claim++) {
        buffer_printf(w->out, "%*s- {name: claim-%d, mountPath: ", w->indent + 6, "",
                      (int)(claim - w->o->claims));
        buffer_json_string(w->out, strchr(*claim, '=') + 1);
        buffer_text(w->out, "}\n");
    }
}

void manifest_pod(const struct manifest_options *o, const char *name, const char *restart_policy,
                  const char *subdomain, const struct manifest_place *place, int indent, struct buffer *out)
{
    const struct writing w = {o, out, indent};
    line(&w, 0, "metadata:");
    line(&w, 2, "labels:");
    pair(&w, 4, "app.kubernetes.io/part-of", w.o->name);
    line(&w, 2, "annotations:");
    if (w.o->metrics_port) {
        line(&w, 4, "prometheus.io/scrape: \"true\"");
        buffer_printf(w.out, "%*sprometheus.io/port: \"%lld\"\n", w.indent + 4, "",
                      (long long)w.o->metrics_port);
    }
    line(&w, 4,
         "sidecar.istio.io/inject: \"false\" # a mesh proxy in front of NCCL and the rendezvous breaks both");
    line(&w, 0, "spec:");
    if (restart_policy)
        pair(&w, 2, "restartPolicy", restart_policy);
    if (subdomain)
        pair(&w, 2, "subdomain", subdomain);
    buffer_printf(out, "%*sterminationGracePeriodSeconds: %lld # longer than PET_SHUTDOWN_TIMEOUT\n",
                  indent + 2, "", (long long)o->grace_s);
    line(&w, 2, "securityContext: {fsGroup: 1000} # its group can read the secret");
    line(&w, 2, "initContainers:");
    line(&w, 2, "- name: muster # brings the launcher into an image that does not have it");
    pair(&w, 4, "image", o->launcher_image);
    line(&w, 4, "command: [cp, -a, /opt/muster/., /launcher/]");
    line(&w, 4, "volumeMounts:");
    line(&w, 6, "- {name: launcher, mountPath: /launcher}");
    container(&w, name, place);
    volumes(&w);
}
