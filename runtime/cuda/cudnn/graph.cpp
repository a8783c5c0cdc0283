/* graph.cpp - see graph.h. The frontend finds the library's functions in the handle that it is given: nothing
 * here links with cuDNN. */
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <unordered_map>

#include <cudnn_frontend.h>

#include "proto/base/error.h"
#include "runtime/cuda/cudnn/graph.h"
#include "runtime/cuda/devices/devices.h"

namespace fe = cudnn_frontend;

namespace cudnn_frontend
{
void *cudnn_dlhandle = nullptr;
}

struct cudnn_place {
    std::shared_ptr<fe::DeviceProperties> properties; /* of a described device; else NULL */
    cudnnHandle_t handle = nullptr;                   /* of a device that is here */
    int capability = 0, sms = 0;
};

struct cudnn_graph {
    struct cudnn_place *place;
    fe::graph::Graph graph;
    int64_t work = 0;
    int tensors = 0;
};

/* ---- places ---- */

/* What an architecture has and devices.h does not: no figure here is of a device alone. */
struct architecture {
    int capability, block_memory, reserved_memory, sm_threads, sm_blocks;
};
static const struct architecture architectures[] = {
    {75, 65536, 0, 1024, 16},
    {80, 166912, 1024, 2048, 32},
    {90, 232448, 1024, 2048, 32},
    {100, 232448, 1024, 2048, 32},
};

static std::string json_of(const struct cuda_description &d, const struct architecture &a)
{
    std::ostringstream out;
    const int64_t memory_khz = static_cast<int64_t>(d.memory_rate * 4 / d.memory_bus_bits / 1e3);
    out << "{\"deviceVer\":" << d.capability * 10 << ",\"driverVer\":13000,\"cudaDeviceId\":0"
        << ",\"totalGlobalMem\":" << d.memory_bytes << ",\"maxGridSize\":[2147483647,65535,65535]"
        << ",\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":" << d.sms
        << ",\"smCountOrigin\":0,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152"
        << ",\"maxSharedMemoryPerBlockOptin\":" << a.block_memory
        << ",\"oversizedSharedMemoryPerBlock\":" << a.block_memory
        << ",\"reservedSharedMemoryPerBlock\":" << a.reserved_memory << ",\"maxRegistersPerSM\":65536"
        << ",\"maxCtasPerSM\":" << a.sm_blocks
        << ",\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":" << a.sm_threads
        << ",\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":"
        << d.clock_mhz * 1000 << ",\"memClockRateKHz\":" << memory_khz
        << ",\"memoryBusWidth\":" << d.memory_bus_bits << ",\"l2CacheSize\":" << d.cache_bytes
        << ",\"deviceName\":\"" << d.product << "\"}";
    return out.str();
}

static int describe(struct cudnn_place *place, const struct cuda_description *d, struct muster_error *err)
{
    for (const struct architecture &a : architectures) {
        if (a.capability != d->capability)
            continue;
        const std::string json = json_of(*d, a);
        place->properties = std::make_shared<fe::DeviceProperties>();
        place->capability = d->capability;
        place->sms = d->sms;
        auto status = place->properties->deserialize(std::vector<uint8_t>(json.begin(), json.end()));
        return status.is_good()
                   ? 0
                   : error_set(err, MUSTER_E_UNSUPPORTED, "cuDNN does not read the description of an %s: %s",
                               d->product, status.get_message().c_str());
    }
    return error_set(err, MUSTER_E_UNSUPPORTED,
                     "%s is described, but its architecture sm_%d is not: a row of %s", d->product,
                     d->capability, __FILE__);
}

extern "C" int cudnn_graph_built(struct muster_error *err)
{
    (void)err;
    return 0;
}

extern "C" struct cudnn_place *cudnn_place_open(void *library, const struct cuda_description *described,
                                                struct muster_error *err)
try {
    auto place = std::make_unique<cudnn_place>();
    fe::cudnn_dlhandle = library;
    if (described) {
        if (describe(place.get(), described, err))
            return nullptr;
    } else if (const auto status = fe::detail::create_handle(&place->handle);
               status != CUDNN_STATUS_SUCCESS) {
        (void)error_set(err, MUSTER_E_UNSUPPORTED, "cudnnCreate: %s", fe::detail::get_error_string(status));
        return nullptr;
    }
    return place.release();
} catch (const std::exception &e) {
    (void)error_set(err, MUSTER_E_UNSUPPORTED, "cuDNN: %s", e.what());
    return nullptr;
}

extern "C" void cudnn_place_close(struct cudnn_place *place)
try {
    if (place && place->handle)
        (void)fe::detail::destroy_handle(place->handle); /* at the end: there is no work left */
    delete place;
} catch (const std::exception &) {
    return; /* a function is missing that opened it */
}

/* ---- graphs ---- */

using tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using sizes = std::vector<int64_t>;

static fe::DataType_t type_of(enum dtype values)
{
    return values == DTYPE_BF16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
}

/* (B,heads,T,head_size) whose rows, one a position, lie `row` elements apart. */
struct rows {
    sizes dim, stride;
};
static rows rows_of(const struct attention *a, int heads, int64_t row)
{
    return {{a->B, heads, a->T, a->head_size}, {a->T * row, a->head_size, row, 1}};
}

static tensor input(fe::graph::Graph &graph, enum cudnn_tensor which, const char *name, const rows &r,
                    fe::DataType_t type)
{
    return graph.tensor(fe::graph::Tensor_attributes()
                            .set_name(name)
                            .set_uid(which + 1)
                            .set_dim(r.dim)
                            .set_stride(r.stride)
                            .set_data_type(type));
}

static void output(const tensor &t, enum cudnn_tensor which, const rows &r, fe::DataType_t type)
{
    t->set_output(true).set_uid(which + 1).set_dim(r.dim).set_stride(r.stride).set_data_type(type);
}

static void draw(fe::graph::Graph &graph, const struct attention *a, fe::DataType_t type, bool backward)
{
    const rows q = rows_of(a, a->heads, a->q_row), k = rows_of(a, a->kv_heads, a->k_row),
               v = rows_of(a, a->kv_heads, a->v_row),
               dense = rows_of(a, a->heads, int64_t{a->heads} * a->head_size),
               lse = {{a->B, a->heads, a->T, 1}, {int64_t{a->heads} * a->T, a->T, 1, 1}};
    const float scale = static_cast<float>(a->scale != 0 ? a->scale : 1 / std::sqrt(a->head_size));
    const tensor in_q = input(graph, CUDNN_Q, "q", q, type), in_k = input(graph, CUDNN_K, "k", k, type),
                 in_v = input(graph, CUDNN_V, "v", v, type);
    if (!backward) {
        auto options =
            fe::graph::SDPA_attributes().set_name("forward").set_generate_stats(true).set_attn_scale(scale);
        options.set_causal_mask(a->causal != 0);
        const auto made = graph.sdpa(in_q, in_k, in_v, options);
        output(made[0], CUDNN_OUT, dense, type);
        output(made[1], CUDNN_LSE, lse, fe::DataType_t::FLOAT);
        return;
    }
    auto options = fe::graph::SDPA_backward_attributes().set_name("backward").set_attn_scale(scale);
    options.set_causal_mask(a->causal != 0);
    options.set_deterministic_algorithm(true);
    const tensor out = input(graph, CUDNN_OUT, "out", dense, type),
                 dout = input(graph, CUDNN_DOUT, "dout", dense, type),
                 stats = input(graph, CUDNN_LSE, "lse", lse, fe::DataType_t::FLOAT);
    const auto made = graph.sdpa_backward(in_q, in_k, in_v, out, dout, stats, options);
    output(made[0], CUDNN_DQ, q, type);
    output(made[1], CUDNN_DK, k, type);
    output(made[2], CUDNN_DV, v, type);
}

static fe::error_t plan(struct cudnn_graph *g)
{
    fe::graph::Graph &graph = g->graph;
    const cudnnHandle_t handle = g->place->handle;
    fe::error_t status = graph.validate();
    if (status.is_good())
        status = graph.build_operation_graph(handle);
    if (status.is_good())
        status = graph.create_execution_plans({fe::HeurMode_t::A});
    if (status.is_good())
        status = graph.check_support();
    if (status.is_good())
        status = graph.build_plans();
    if (status.is_good())
        status = graph.get_workspace_size(g->work);
    return status;
}

extern "C" struct cudnn_graph *cudnn_graph_make(struct cudnn_place *place, const struct attention *a,
                                                enum dtype values, bool backward, struct muster_error *err)
try {
    auto g = std::make_unique<cudnn_graph>();
    g->place = place;
    g->tensors = backward ? CUDNN_BACKWARD_TENSORS : CUDNN_FORWARD_TENSORS;
    g->graph.set_io_data_type(type_of(values))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (place->properties)
        g->graph.set_device_properties(place->properties)
            .set_sm_version(place->capability)
            .set_sm_count(place->sms);
    draw(g->graph, a, type_of(values), backward);
    fe::error_t status = plan(g.get());
    if (status.is_good())
        return g.release();
    (void)error_set(
        err, MUSTER_E_UNSUPPORTED, "cuDNN plans no attention %s of %d x %d positions, %d heads of %d: %s",
        backward ? "backward" : "forward", a->B, a->T, a->heads, a->head_size, status.get_message().c_str());
    return nullptr;
} catch (const std::exception &e) {
    (void)error_set(err, MUSTER_E_UNSUPPORTED, "cuDNN plans no attention %s: %s",
                    backward ? "backward" : "forward", e.what());
    return nullptr;
}

extern "C" void cudnn_graph_free(struct cudnn_graph *graph)
{
    delete graph;
}

extern "C" size_t cudnn_graph_work(const struct cudnn_graph *graph)
{
    return static_cast<size_t>(graph->work);
}

extern "C" int cudnn_graph_run(struct cudnn_graph *graph, void *const *tensors, void *work, void *stream,
                               struct muster_error *err)
try {
    const cudnnHandle_t handle = graph->place->handle;
    if (!handle)
        return error_set(err, MUSTER_E_STATE, "attention by cuDNN for a GPU that is described and not here");
    const auto set = fe::detail::set_stream(handle, static_cast<cudaStream_t>(stream));
    if (set != CUDNN_STATUS_SUCCESS)
        return error_set(err, MUSTER_E_STATE, "cudnnSetStream: %s", fe::detail::get_error_string(set));
    std::unordered_map<int64_t, void *> by_uid;
    for (int i = 0; i < graph->tensors; i++)
        by_uid[i + 1] = tensors[i];
    auto status = graph->graph.execute(handle, by_uid, work);
    return status.is_good()
               ? 0
               : error_set(err, MUSTER_E_STATE, "attention by cuDNN: %s", status.get_message().c_str());
} catch (const std::exception &e) {
    return error_set(err, MUSTER_E_STATE, "attention by cuDNN: %s", e.what());
}
