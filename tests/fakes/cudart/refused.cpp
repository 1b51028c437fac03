// Functions that PyTorch links with and that the stand-in does not implement.

#include "tests/fakes/cudart/refused.h"

// --- memory of CUDA's own pools, of graphs and of other processes
VDNN_REFUSED(cudaDeviceGetDefaultMemPool)
VDNN_REFUSED(cudaDeviceGetGraphMemAttribute)
VDNN_REFUSED(cudaDeviceSetGraphMemAttribute)
VDNN_REFUSED(cudaIpcCloseMemHandle)
VDNN_REFUSED(cudaIpcGetEventHandle)
VDNN_REFUSED(cudaIpcOpenEventHandle)
VDNN_REFUSED(cudaIpcOpenMemHandle)
VDNN_REFUSED(cudaMemPoolGetAttribute)
VDNN_REFUSED(cudaMemPoolSetAccess)
VDNN_REFUSED(cudaMemPoolSetAttribute)
VDNN_REFUSED(cudaMemPoolTrimTo)
// --- graphs that are built by hand
VDNN_REFUSED(cudaGraphAddNode)
VDNN_REFUSED(cudaGraphConditionalHandleCreate)
VDNN_REFUSED(cudaGraphGetNodes)
VDNN_REFUSED(cudaGraphInstantiateWithFlags)
VDNN_REFUSED(cudaGraphNodeGetDependencies)
VDNN_REFUSED(cudaGraphRetainUserObject)
VDNN_REFUSED(cudaStreamUpdateCaptureDependencies)
VDNN_REFUSED(cudaUserObjectCreate)
VDNN_REFUSED(cudaUserObjectRelease)
// --- code and its variables
VDNN_REFUSED(cudaGetSymbolAddress)
VDNN_REFUSED(cudaKernelSetAttributeForDevice)
VDNN_REFUSED(cudaLibraryGetGlobal)
VDNN_REFUSED(cudaLibraryGetKernel)
VDNN_REFUSED(cudaLibraryGetKernelCount)
VDNN_REFUSED(cudaLibraryGetManaged)
VDNN_REFUSED(cudaLibraryGetUnifiedFunction)
VDNN_REFUSED(cudaLibraryLoadData)
VDNN_REFUSED(cudaLibraryLoadFromFile)
VDNN_REFUSED(cudaLibraryUnload)
VDNN_REFUSED(cudaMemcpyToSymbol)
